/* The only half message may be discarded by the broker, and Redis may be lost: neither check-back nor records are
   left. */
#define REDIS_LOSSES 1
#define HALF_DISCARDED
#include "../dropgate.pml"
