/*
 * What weir and weir-php must agree on: the messages between manager and master (channel.h) and the records of a worker's
 * stream (fastcgi.h). Both sides of that are built from one source, but a file of another build may be installed beside weir.
 */
#ifndef WEIR_PROTOCOL_H
#define WEIR_PROTOCOL_H

/* The number of what this program speaks. Raise it in protocol.c whenever a message or a record changes. */
unsigned protocol_number(void);

#endif
