"""What `bench/run`, `bench/profile` and `bench/instructions` share. Each file has one subject:

machine    the machine: cores, kernel, versions; which other programs use the processor
packages   programs from the distribution's packages, and weir's own builds
under_valgrind.c  starts the gateway, and nothing else, under valgrind
processes  process trees that the benchmark starts: their CPU time and memory; ends them in every case
peers      the servers that are compared, from the templates in `bench/peers/`
backends   what runs behind the servers: a responder that does no work, PHP-FPM, or a server's own PHP
stacks     a server with its PHP; measures each process separately
php        php.ini, scripts, and the cost of the PHP engine alone
wordpress  WordPress and its database
load       load generators. Each has a time limit, and all return the same kind of result
idle       ten thousand idle clients with open connections
measure    CPU time and memory during a load
pairs      weir and nginx side by side, in many short turns
php_pairs  the same with whole stacks: PHP, WordPress, applications that stay booted
compression  pages and events that are compressed, in turns
works      works with the same backend behind all servers; takes one sample of one work with one server
php_works  works with whole stacks under load
overload   scenarios 1 and 4: too many users, each stack with several configurations; the kernel's queues
crowds     scenario 5, fairness, ten thousand waiting requests, the status page under full load
trials     works with bursts, reloads, dying workers, and very many requests
networks   separate networks with a long delay between them; relay.py delays the packets
origins    the servers that are called: nginx with TLS, nameserver.py, and misbehave.py
sidecars   weir's egress, nginx and HAProxy as proxies beside an application, and that application
egress     scenario 3: calls to other servers
http2_rounds  requests over HTTP/2 that are the same in each run; tls_rounds: handshakes
source_lines  how many lines of Rust the program has
table      medians, tables, and the targets beside the measured values
php_table  the same for the works with whole stacks
crowd_table  the same for overload and crowds
egress_table  the same for egress
pairs_table  the same for pairs
"""
