/* One reservation, the loss of Redis, the queue deadline, and a storefront that asks GET. */
#define REDIS_LOSSES 1
#define TIME_PASSES
#define ASKS_GET
#include "../dropgate.pml"
