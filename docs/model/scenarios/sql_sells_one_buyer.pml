/* on_redis_loss: sql. One buyer with a limit of one asks twice; two units. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_B
#define ONE_BUYER
#define STOCK 2
#define REDIS_LOSSES 1
#define SELLS_ON_SQL
#include "../dropgate.pml"
