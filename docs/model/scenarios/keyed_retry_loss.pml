/* A keyed retry and the loss of Redis; the queue deadline may pass. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_A
#define RETRY_OF_FIRST
#define REDIS_LOSSES 1
#define TIME_PASSES
#include "../dropgate.pml"
