"""Apache Kafka as the oracle: the same requests to it and to our broker at the same time, and their answers compared.

    messages     a request from plain data
    side         one of the two brokers, and what it said: a transcript
    plain        an answer as plain data, with symbols for what must differ (ids, ports, times)
    comparison   where two transcripts differ
    scenario     what a scenario is, and running one on both sides
    calls        the requests that scenarios make most; batches, members: what they carry
    scenarios/   the scenarios by area, `walks` among them: random sequences by seed
    logged_in    a side where everybody must log in, for scenarios/secured
    register     what a known difference is; known/ has them all, by area, as rows of docs/differences.md

`test_differential.py` beside this package runs it.
"""
