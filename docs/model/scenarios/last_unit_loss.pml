/* B holds the only unit and may cancel its order; A asks twice with one key; Redis is lost. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_A
#define RETRY_OF_FIRST
#define B_HAS_THE_UNIT
#define CANCEL_B
#define CANCEL_ONLY_ORDERS
#define REDIS_LOSSES 1
#include "../dropgate.pml"
