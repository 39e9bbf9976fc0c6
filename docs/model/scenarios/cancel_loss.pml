/* One reservation and its keyed retry, a cancel, and the loss of Redis. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_A
#define RETRY_OF_FIRST
#define REDIS_LOSSES 1
#define CANCEL_A 1
#include "../dropgate.pml"
