"""``npuc check``: one input at four levels, and where a number went wrong.

L1 is the source's float arithmetic, L2 the quantised graph's reference, L3 the tiled program on
memory of its own for each buffer, in program order, L4 the blob in the emulator. L3 parts from L2
where packing, tiling or a kernel is wrong; L4 from L3 where placement, order, waits, encoding or
boot are.
"""
