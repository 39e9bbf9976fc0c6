/* Two buyers, one unit, the loss of Redis, and the winner may cancel once it is an order. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_B
#define REDIS_LOSSES 1
#define CANCEL_A 1
#define CANCEL_ONLY_ORDERS
#include "../dropgate.pml"
