"""Beside this file lies `support`, which every test folder may import."""
