"""What `bench/run` and `bench/profile` share, one file per subject:

machine    what is measured on: cores, kernel, versions; who else uses the processor
packages   programs from the distribution's packages, and weir's own build
processes  process trees that the benchmark starts: CPU time, memory, an end in every case
peers      the servers compared, from the templates in `bench/peers/`
backends   what is behind them: the responder that does nothing, PHP-FPM
load       load generators, each bounded, each with the same kind of result
idle       ten thousand clients that keep their connection and say nothing
works      the list of works, and one sample of one work by one server
table      medians, tables, and what was asked against what was measured
"""
