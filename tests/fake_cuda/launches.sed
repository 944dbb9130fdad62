# Kernel launches as functions of cuda_on_cpu.h: name<<<grid, block, shared, stream>>>( on one line.
s/\([A-Za-z_0-9]*\)<<<\(.*\)>>>(/CDDPI_START(\1, \2, /
