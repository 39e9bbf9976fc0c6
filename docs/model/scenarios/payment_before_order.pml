/* A payment, perhaps before there is an order, while Redis is lost and the queue deadline passes: the order may be
   rejected instead. */
#define PAYMENTS 1
#define REDIS_LOSSES 1
#define TIME_PASSES
#include "../dropgate.pml"
