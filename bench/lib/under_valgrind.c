/* Loaded into weir's manager (LD_PRELOAD) by bench/instructions: starts the gateway, and nothing else, as
   $WEIR_UNDER says: words that are separated by single spaces and stand before the program's path. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

static char *words[MOST];
static int count;

/* The environment of the gateway is another one when it is executed. */
__attribute__((constructor)) static void read_words(void)
{
    const char *under = getenv("WEIR_UNDER");
    char *word = under ? strtok(strdup(under), " ") : NULL;
    for (; word && count < MOST / 2; word = strtok(NULL, " "))
        words[count++] = word;
}

int execvp(const char *file, char *const arguments[])
{
    int (*real)(const char *, char *const[]) = (int (*)(const char *, char *const[]))dlsym(RTLD_NEXT, "execvp");
    if (count > 0 && strcmp(file, "/proc/self/exe") == 0) {
        for (int n = 1; arguments[n] && count + n < MOST; n++)
            words[count + n - 1] = arguments[n];
        return real(words[0], words);
    }
    return real(file, arguments);
}
