"""The loops over records, compiled ahead of use by numba.

Only `build` imports these modules at run time, in a process of its own; everybody else loads the machine code it leaves
behind (`lakestream.records.native`). Kernels take raw buffers, allocate nothing, raise nothing and check every bound
themselves: whatever the bytes say, they answer with a status and never read or write outside what they were given.
They are written in numba's dialect, which mypy cannot type.
"""
