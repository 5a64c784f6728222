"""The second study: interrupt finished traces (:mod:`~midtrace.interruptions.interrupt`), grade what follows
(:mod:`~midtrace.interruptions.grade`), and estimate accuracy, length and failure modes (:mod:`~midtrace.interruptions.estimates`)."""
