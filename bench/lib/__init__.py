"""What `bench/run`, `bench/profile` and `bench/instructions` share, one file per subject:

machine    what is measured on: cores, kernel, versions; who else uses the processor
packages   programs from the distribution's packages, and this source's own builds
under_valgrind.c  has the gateway, and nothing else, started under valgrind
processes  process trees that the benchmark starts: CPU time, memory, an end in every case
peers      the servers compared, from the templates in `bench/peers/`
backends   what is behind them: the responder that does nothing, PHP-FPM, or PHP of their own
stacks     a server and its PHP together, told apart by process
php        php.ini, scripts, and what the engine costs by itself
wordpress  WordPress and its database
load       load generators, each bounded, each with the same kind of result
idle       ten thousand clients that keep their connection and say nothing
measure    CPU time and memory while a load runs
works      works with the same thing behind all servers, and one sample of one work by one server
php_works  works with whole stacks under load
overload   scenarios 1 and 4: too many users, each stack set up in several ways; the kernel's queues
crowds     scenario 5, fairness, ten thousand that wait, status at saturation
trials     works with bursts, reloads, dying workers, and very many requests
networks   networks of their own, with a long way between them; relay.py holds packets back
origins    who is called: nginx over TLS, nameserver.py, and misbehave.py
sidecars   weir's egress, nginx and HAProxy as proxies beside an application, and that
egress     scenario 3: calls to others
table      medians, tables, and what was asked against what was measured
php_table  the same for the works with whole stacks
crowd_table  the same for overload and crowds
egress_table  the same for egress
"""
