"""Uses Apache Kafka as the oracle: Kafka and oncelog's broker get the same requests at the same time, and their
responses are compared.

    messages     a request from plain data
    side         one of the two brokers, and what it said: a transcript
    plain        an answer as plain data, with symbols for what must differ (ids, ports, times)
    comparison   where two transcripts differ
    scenario     what a scenario is, and running one on both sides
    calls        the requests that scenarios make most; batches, members: what they carry
    scenarios/   the scenarios by area, `walks` among them: random sequences by seed
    logged_in    a side where everybody must log in, for scenarios/secured
    register     what a known difference is; known/ has them all, by area, as rows of docs/differences.md

`test_differential.py`, in the parent directory, runs it.
"""
