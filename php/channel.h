/*
 * The channel to the manager: packets, some with a file descriptor, over a SOCK_SEQPACKET pair. One packet is one
 * message: a type byte, then fields in network byte order.
 */
#ifndef WEIR_CHANNEL_H
#define WEIR_CHANNEL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The orders of the manager. */
enum order { ORDER_CONFIG = 1, ORDER_FORK = 2, ORDER_SIGNAL = 3, ORDER_TRACE = 4, ORDER_MASTER = 5 };

/* A packet from the manager. Its bytes are in the channel's buffer until the next packet is received. */
struct packet {
	unsigned char type;
	const unsigned char *body;
	size_t length;
	/* The descriptor that came with the packet, close-on-exec; -1: none. The function that uses it must close it. */
	int descriptor;
	/* Two more descriptors of a FORK or MASTER: standard output and standard error of the new process; -1: none. */
	int output[2];
};

enum received { RECEIVED_PACKET, RECEIVED_NOTHING, RECEIVED_END };

/* Receives one packet. Waits for it if `wait`. Ends the process if the packet is not valid. */
enum received channel_receive(int channel, struct packet *packet, int wait);

/* Messages of the master. They wait if the manager's queue is full. Other code detects that the manager is gone. */
void tell_ready(int channel, const char *inputs);
void tell_failed(int channel, const char *why);
void tell_forked(int channel, uint32_t number, pid_t pid);
void tell_exited(int channel, uint32_t number, pid_t pid, int status);
void tell_fork_failed(int channel, uint32_t number, int error);
void tell_booted(int channel, uint32_t number);
void tell_opcache_is_full(int channel);
void tell_declined(int channel, uint32_t number, const char *why);

#endif
