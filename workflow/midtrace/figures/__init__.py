"""Stage 7: figures of a study.

``catalogue`` says which figures a config asks for (light: the Snakefile reads it), ``style`` how they look, ``effects``, ``checks`` and
``methods`` draw them from ``parts``, ``panels`` finds a kind by its name, ``run`` reads the tables and writes the files.
"""
