/* Redis restarts with all its data: a needless rebuild, which must be harmless. A keyed retry. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_A
#define RETRY_OF_FIRST
#define REDIS_LOSSES 1
#define LOSS_SAME_AFTER_RESTART
#include "../dropgate.pml"
