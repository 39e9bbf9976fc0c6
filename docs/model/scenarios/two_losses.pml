/* A keyed retry and two losses, the second perhaps during the load. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_A
#define RETRY_OF_FIRST
#define REDIS_LOSSES 2
#define LOAD_IN_CHUNKS
#include "../dropgate.pml"
