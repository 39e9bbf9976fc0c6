/* Two buyers, one unit, the loss of Redis. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_B
#define REDIS_LOSSES 1
#include "../dropgate.pml"
