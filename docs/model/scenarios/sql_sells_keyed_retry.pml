/* on_redis_loss: sql. A keyed retry, the first attempt perhaps in the lost epoch. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_A
#define RETRY_OF_FIRST
#define REDIS_LOSSES 1
#define SELLS_ON_SQL
#include "../dropgate.pml"
