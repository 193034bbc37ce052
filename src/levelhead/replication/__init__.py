"""What belongs to one paper only: its claims and its tables, from measures that were read.

Dawkins et al. 2024, projective methods (`dawkins2024`):

- section 4, "a very small handful" of pairs: `pair_budget`
- section 5, its claims about settings: `claims`
- section 5, Tables 5, 6 and 7, intrinsic and extrinsic bias: `downstream`

Yang et al. 2025, biased heads (`yang2025`):

- Table 2, tasks with heads masked: `glue_masking`
- Appendix B, Table 3, other measures by the number of masked heads: `masking_curves`

Zhang 2023, knowledge before a prompt, is in `explain.prompting`: its claims, factorial, regression
on labour statistics and verbalizer are parts of `levelhead.explain.knowledge`.

What more than one paper or a user's own study needs is below: Eq. 3 and 4 of Yang et al. in
`measures.embedding.seat` and `locate`, Table 1 in `mitigate.heads`, section 5.2 in
`explain.attention`; Eq. 2, 3 and 5 of Dawkins et al. in `measures.next_sentence` and
`mitigate.projection`. Steps that run models are in `study.steps`, charts in `report.charts`.
"""
