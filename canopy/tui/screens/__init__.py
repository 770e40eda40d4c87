"""The screens: each puts widgets together, asks the model, and answers the widgets' messages.

``base`` is what all share; ``live`` and ``overlay`` are the two main screens, ``publish``,
``subscribe``, ``export``, ``columns`` and ``help`` open above them.
"""
