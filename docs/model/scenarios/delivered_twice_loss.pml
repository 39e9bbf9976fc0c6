/* Two order consumers, two replicas that answer check-backs, a cancel, and the loss of Redis. */
#define WORKERS 2
#define CHECKERS 2
#define CANCEL_A 1
#define REDIS_LOSSES 1
#include "../dropgate.pml"
