/*
 * The channel to the manager: packets with a descriptor attached, over a SOCK_SEQPACKET pair. One packet is one
 * message: a type byte, then fields in network order.
 */
#ifndef WEIR_CHANNEL_H
#define WEIR_CHANNEL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What the manager orders. */
enum order { ORDER_CONFIG = 1, ORDER_FORK = 2, ORDER_SIGNAL = 3, ORDER_TRACE = 4 };

/* A packet of the manager. Its bytes lie in the channel's buffer until the next one is received. */
struct packet {
	unsigned char type;
	const unsigned char *body;
	size_t length;
	/* The descriptor that came with it, close-on-exec; -1: none. Whoever takes it closes it. */
	int descriptor;
	/* Two more of a FORK: the worker's own standard output and error; -1: none. */
	int output[2];
};

enum received { RECEIVED_PACKET, RECEIVED_NOTHING, RECEIVED_END };

/* Takes one packet; waits for it if `wait`. Ends the process where the packet is none of ours. */
enum received channel_receive(int channel, struct packet *packet, int wait);

/* What the master tells. Waits where the manager's queue is full; a manager that is gone is noticed elsewhere. */
void tell_ready(int channel, const char *inputs);
void tell_failed(int channel, const char *why);
void tell_forked(int channel, uint32_t number, pid_t pid);
void tell_exited(int channel, uint32_t number, pid_t pid, int status);
void tell_fork_failed(int channel, uint32_t number, int error);
void tell_warning(int channel, const char *text);

#endif
