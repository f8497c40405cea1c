/*
 * The number of the protocol. See protocol.h.
 */
#include "protocol.h"

#include <stdlib.h>

/*
 * weir reads the number from the file before it starts the program, so it is stored as text that weir can find.
 * PROTOCOL in crates/machine/src/php.rs must have the same number and the same words before it.
 */
#define WORDS "weir-php speaks protocol "
extern const char protocol_text[];
__attribute__((used)) const char protocol_text[] = WORDS "4\n";

unsigned protocol_number(void)
{
	return (unsigned)strtoul(protocol_text + sizeof WORDS - 1, NULL, 10);
}
