/*
 * The number of the protocol, and the version of the build. See protocol.h.
 */
#include "protocol.h"

#include <stdlib.h>

/*
 * weir reads the number from the file before it starts the program, so it is stored as text that weir can find.
 * PROTOCOL in crates/machine/src/php.rs must have the same number and the same words before it.
 */
#define WORDS "weir-php speaks protocol "
extern const char protocol_text[];
__attribute__((used)) const char protocol_text[] = WORDS "9\n";

/*
 * The version of this build, which weir also reads from the file. It has room for a longer one: tests write another version
 * to a copy of the program. WEIR_VERSION comes from Cargo.toml (php/build).
 */
#define VERSION_WORDS "weir-php was built as version "
extern const char version_text[80];
__attribute__((used)) const char version_text[80] = VERSION_WORDS WEIR_VERSION "\n";

const char *weir_version(void)
{
	static char version[sizeof version_text];
	/* The compiler must not assume that the file has the text of the source. */
	const volatile char *text = version_text + sizeof VERSION_WORDS - 1;
	size_t length = 0;
	while (length + sizeof VERSION_WORDS < sizeof version && text[length] && text[length] != '\n') {
		version[length] = text[length];
		length++;
	}
	version[length] = '\0';
	return version;
}

unsigned protocol_number(void)
{
	return (unsigned)strtoul(protocol_text + sizeof WORDS - 1, NULL, 10);
}
