/* One reservation asked for twice with the same key: the retry overlaps its first attempt, or follows a 503.
   Somebody may cancel it at any time, queued or ordered. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_A
#define RETRY_OF_FIRST
#define CANCEL_A 1
#include "../dropgate.pml"
