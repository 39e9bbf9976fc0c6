/* A and B share a batch for one unit, B retries, Redis is lost. */
#define ATTEMPTS 2
#define ASKS_0 A_AND_B
#define ASKS_1 JUST_B
#define RETRY_OF_FIRST
#define REDIS_LOSSES 1
#include "../dropgate.pml"
