"""What real nodes cost: memory (`memory`, and with programs that come and go `passing`), many idle
ones (`crowd`), a subscriber that stalls (`slow_subscriber`, `slow_reader`), very many selectors
(`subscribing`), and a second process that hosts (`two_processes`).
"""
