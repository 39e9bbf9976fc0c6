/* on_redis_loss: sql. Two buyers, one unit: one may be queued in the lost epoch while SQL sells. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_B
#define REDIS_LOSSES 1
#define SELLS_ON_SQL
#include "../dropgate.pml"
