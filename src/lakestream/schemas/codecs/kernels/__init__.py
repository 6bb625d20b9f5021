"""The value interpreters in the subset of Python that numba compiles. Built by `lakestream.records.kernels.build`,
loaded without numba (`codecs.native`)."""
