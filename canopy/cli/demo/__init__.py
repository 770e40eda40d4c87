"""`canopy demo`: real node processes on loopback deliver a feed, and Spark checks the result.

``command`` is the command line and ``run`` the order of the steps. In that order: ``plan`` checks
what was asked for before anything starts, and fetches the earthquakes, ``run`` prepares the output
folder, ``overlay`` starts, watches and stops the processes, ``subscribers`` makes all
subscriptions and writes down the deliveries, ``publisher`` publishes the feed, and when
nothing is under way any more ``summary`` compares what the analysis of the traces
(`canopy.traces.analysis`) found with the deliveries. ``tour`` is the same overlay as a
guided tour. The benches use ``overlay`` too.
"""
