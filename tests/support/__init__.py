"""What tests share. A test of one machine, or of a few, is written in `world`:

    world = World(seed=1)                 # delay=(low, high): messages travel by themselves
    node = world.member("h")                # `one_node()`: a single node
    node.add(Hosting(node, ...))          # any machines: the node is their Port
    node.hear(Visit(...), peer("pub"))    # a turn: a message, a timer or an event
    world.flush()                         # deliver, or one by one: world.deliver(("h", "s"))
    world.run(2.0)                        # time passes, timers fire
    world.cut("h", "s")                   # both hear LinkDown; also sever, heal, kill
    assert node.take(Deliver) == [...]    # also of(event type), traced(kind), counts, timers

Ready-made nodes of a room: `walks` (lower layer), `trees` (owner, hosts), `rings` (ring and
clusters). `link_world` has sessions on the simulator's network, `overlays` whole nodes in the
simulator; `real` is a room of its own, with sockets and processes. A protocol that is best read as
a story is compared with a `transcript`.
"""
