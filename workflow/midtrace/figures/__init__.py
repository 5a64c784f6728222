"""Stage 7: figures of a study.

``catalogue`` says which figures a config asks for (light: the Snakefile reads it), ``style`` how they look, ``panels`` draws them, ``run``
reads the tables and writes the files.
"""
