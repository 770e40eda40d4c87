"""The documentation as a site (`make docs`): what mkdocs needs beside mkdocs.yml.

``hook`` is called by mkdocs; nothing else imports it. ``pages`` makes pages from the code.
"""
