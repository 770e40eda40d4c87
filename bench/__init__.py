"""Measurements, a folder per subject; each file says what it measures.

``command`` is what their commands share. ``node/`` one node, ``dataplane/`` beside other systems,
``matching/`` the index, ``recovery/`` and ``endurance/`` real processes with faults (started by
``processes/``), ``simulator/`` what simulated nodes cost, ``mutations/`` planted faults,
``baselines/`` the overlays of CBDLO's figures. ``lab/`` writes rows to ``results/`` and makes the
tables of docs/lab from them; ``proof/`` tries what is promised, at size and in pieces.
"""
