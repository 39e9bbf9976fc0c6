/* Redis restarts with the data of its last load: another run_id, the same replication id. A keyed retry. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_A
#define RETRY_OF_FIRST
#define REDIS_LOSSES 1
#define LOSS_OLDER_AFTER_RESTART
#include "../dropgate.pml"
