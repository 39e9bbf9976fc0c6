/* One buyer asks twice with a limit of one, two units, the loss of Redis. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_B
#define ONE_BUYER
#define STOCK 2
#define REDIS_LOSSES 1
#include "../dropgate.pml"
