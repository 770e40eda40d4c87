"""The screens: each puts widgets together, asks the model, and answers the widgets' messages.

``base`` is what all share; ``live``, ``overlay`` and ``streams`` are the main screens, ``publish``,
``subscribe``, ``export`` and ``help`` open above them.
"""
