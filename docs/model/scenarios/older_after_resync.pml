/* The master is demoted, re-synced from an older copy and promoted again: the same run_id, another replication id.
   A keyed retry. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_A
#define RETRY_OF_FIRST
#define REDIS_LOSSES 1
#define LOSS_OLDER_AFTER_RESYNC
#include "../dropgate.pml"
