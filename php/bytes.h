/*
 * Numbers in network byte order, for both protocols of a pool: the packets of the manager and the records of FastCGI.
 */
#ifndef WEIR_BYTES_H
#define WEIR_BYTES_H

#include <stdint.h>

static inline uint16_t get_u16(const unsigned char *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t get_u32(const unsigned char *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline void put_u16(unsigned char *at, uint16_t number)
{
	at[0] = (unsigned char)(number >> 8);
	at[1] = (unsigned char)number;
}

static inline void put_u32(unsigned char *at, uint32_t number)
{
	put_u16(at, (uint16_t)(number >> 16));
	put_u16(at + 2, (uint16_t)number);
}

static inline void put_u64(unsigned char *at, uint64_t number)
{
	put_u32(at, (uint32_t)(number >> 32));
	put_u32(at + 4, (uint32_t)number);
}

#endif
