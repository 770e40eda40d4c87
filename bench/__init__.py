"""Measurements, a folder per subject; each file says what it measures.

``command`` is what their commands share. ``dataplane/`` and ``streams/`` beside other systems,
``matching/`` the index, ``node/``, ``recovery/`` and ``endurance/`` real processes (started by
``processes/``), ``experiments/`` whole overlays in the simulator, ``papers/`` what the papers
measured, ``mutations/`` planted faults, ``baselines/`` the overlays of CBDLO's figures. ``lab/``
writes rows to ``results/`` and makes the tables of docs/lab from them; ``proof/`` tries what is
promised, at size and in pieces.
"""
