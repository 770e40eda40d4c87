"""The screens: each composes widgets, asks the model, and answers the widgets' messages.

``base`` has the parts that all share; ``live``, ``overlay`` and ``streams`` are the main screens;
``publish``, ``subscribe``, ``export`` and ``help`` are dialogs above them, and ``dialog`` is the
frame of those with buttons.
"""
