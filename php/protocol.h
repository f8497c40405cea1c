/*
 * What weir and weir-php must agree on: the messages between manager and master (channel.h) and the records of a
 * worker's stream (fastcgi.h). Both programs are built from the same source, but weir-php of another build may be
 * installed beside weir.
 */
#ifndef WEIR_PROTOCOL_H
#define WEIR_PROTOCOL_H

/* The protocol number of this program. Increase it in protocol.c whenever a message or a record changes. */
unsigned protocol_number(void);

/* The version of this build. weir and weir-php of different versions refuse each other, also with the same protocol. */
const char *weir_version(void);

#endif
