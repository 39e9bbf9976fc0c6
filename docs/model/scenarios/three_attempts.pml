/* A, its keyed retry, and B compete for one unit; B may cancel once it is an order. */
#define ATTEMPTS 3
#define ASKS_0 JUST_A
#define ASKS_1 JUST_A
#define ASKS_2 JUST_B
#define RETRY_OF_FIRST
#define CANCEL_B
#define CANCEL_ONLY_ORDERS
#include "../dropgate.pml"
