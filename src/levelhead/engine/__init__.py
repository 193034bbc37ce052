"""How work is run: units, shards, the content-addressed store, runners, jobs. No torch here.

Work is pure functions over units whose key is the hash of everything the result depends on. A
runner computes, the store keeps, a job joins the two: what is stored is never computed again.
"""
